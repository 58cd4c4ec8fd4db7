"""Grants: how a consumer that is told real addresses proves, once, that they are meant for it.

keyring     signs and verifies: pure            redemption  what a shown grant leads to: the database edge
gate        where it is shown, on a GPU host    visit       showing it
"""
