"""The demonstration behind `./dev demo`: the published command lines, and proofs that they hold."""
