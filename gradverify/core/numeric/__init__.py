"""Derivatives by differences, each with an error bar: smooth ones, one-sided ones, and where there is none."""
