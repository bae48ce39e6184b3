"""A store looked at from outside: what it holds, whether it is whole, what is in it; nothing is ever written."""
