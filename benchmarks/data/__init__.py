"""Scripts that make data sets of real rows from what is installed."""
