"""Drills: what may happen to a job of several hosts is done to one, by chance.

`make drills` runs them many times, tests/hosts/test_drills.py each once.
"""
