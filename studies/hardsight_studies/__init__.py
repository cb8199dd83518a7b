"""The papers' tables and figures as data: `hardsight study list` names them, `run` computes, `table` prints."""
