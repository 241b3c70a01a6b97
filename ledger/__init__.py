"""Remembers: tables, spool and the questions that finance asks."""
