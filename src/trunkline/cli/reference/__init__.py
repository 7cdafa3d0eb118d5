"""The parts of the documentation that are made from the code, so that they cannot grow old."""
