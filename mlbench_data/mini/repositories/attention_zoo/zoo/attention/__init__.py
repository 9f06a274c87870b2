"""One attention module a file, named after the module."""
