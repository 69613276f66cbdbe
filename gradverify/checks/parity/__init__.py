"""Outputs and gradients on another device compared with those on the CPU."""
