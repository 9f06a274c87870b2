"""Attention modules and token mixers in numpy. Import each from its own file."""
