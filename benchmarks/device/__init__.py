"""What `python -m benchmarks.device_check` does, in parts."""
