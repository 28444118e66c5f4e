"""Requests, scheduling, speculation, modes and the loaded model. Import from the modules; ``swiftsure`` names what users need."""
