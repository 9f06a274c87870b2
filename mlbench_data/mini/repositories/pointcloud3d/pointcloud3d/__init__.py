"""Registration, classification, completion and sampling of small point clouds."""
