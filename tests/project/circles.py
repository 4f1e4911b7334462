"""An import contract for the linter: circles among the modules of a package, without imports for type checkers."""

from __future__ import annotations

import grimp
from importlinter import ContractCheck
from importlinter.contracts.acyclic_siblings import AcyclicSiblingsContract


class CirclesAtRunTime(AcyclicSiblingsContract):
    """``acyclic_siblings`` over the imports that run, below ``TYPE_CHECKING`` none.

    The linter's own option that leaves those out holds for all contracts of its settings, and the layers count them.
    """

    def check(self, graph: grimp.ImportGraph, verbose: bool) -> ContractCheck:
        roots: list[str] = self.session_options["root_packages"]
        return super().check(grimp.build_graph(*roots, exclude_type_checking_imports=True, cache_dir=None), verbose)
