"""Tampering cases: how genuine evidence is damaged or forged, and what each command must answer then."""
