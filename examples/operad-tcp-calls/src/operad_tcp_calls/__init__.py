"""Calls between processes as lines of JSON over TCP."""
