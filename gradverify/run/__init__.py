"""Cases to results: workers, time-outs, order, devices."""
