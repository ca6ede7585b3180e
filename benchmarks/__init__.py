"""Measurements that anyone can rerun: `python -m benchmarks --help`."""
