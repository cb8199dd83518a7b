"""Names of other libraries, so that a script that uses them changes one import: `hardsight.compat.cleanlab`."""
