"""What Fusee claims about its speed, measured beside its peers in the same run: `python -m benchmarks`."""
