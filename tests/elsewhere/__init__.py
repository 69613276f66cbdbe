"""The mathematics on a device that is not the CPU, on machines that have none."""
