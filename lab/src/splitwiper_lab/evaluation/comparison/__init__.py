"""Compare systems on the same data, network and meters: what each learns, and what forgetting costs each party."""

from splitwiper_lab.evaluation.comparison.membership import Exposure, exposures
from splitwiper_lab.evaluation.comparison.record import Phase, Record, records_of_results
from splitwiper_lab.evaluation.comparison.running import compared
from splitwiper_lab.evaluation.comparison.settings import Comparison, System, read_comparison
from splitwiper_lab.evaluation.comparison.stage import stage
from splitwiper_lab.evaluation.comparison.summary import SeedSpread, SummaryRow, in_order, summary
from splitwiper_lab.evaluation.comparison.sweeping import ComparisonMeasure, check_record, comparison_cells, conditions

__all__ = [
    "Comparison",
    "ComparisonMeasure",
    "Exposure",
    "Phase",
    "Record",
    "SeedSpread",
    "SummaryRow",
    "System",
    "check_record",
    "compared",
    "comparison_cells",
    "conditions",
    "exposures",
    "in_order",
    "read_comparison",
    "records_of_results",
    "stage",
    "summary",
]
