"""Presets of G(PO)MDP: those of REINFORCE."""

from s2pg.config.presets.reinforce import PRESETS

__all__ = ["PRESETS"]
