"""Contracts: what a candidate owes, decided and digested before anything is measured."""
