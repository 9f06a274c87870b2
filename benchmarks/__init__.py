"""Speed and memory, side by side with what a user would use instead: ratios, not times, are claims."""
