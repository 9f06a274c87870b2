"""Mixers without attention."""
