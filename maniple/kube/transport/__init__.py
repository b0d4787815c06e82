"""Requests, lists and watches: everything below the meaning of an object."""
