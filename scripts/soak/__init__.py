"""A client at full rate for a long time, while members of its groups come and go: does anything grow?"""
