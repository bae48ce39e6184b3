"""Spark under measurement: a program that holds one session and does what it is told, and the end that tells it."""
