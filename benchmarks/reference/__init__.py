"""What a user would do without this toolkit, written from its description, for comparison only."""
