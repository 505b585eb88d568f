"""Accept length against training size: points, fits, the data needed to break even, and what cannot be known."""

from workbench.analysis.scaling.fit import FormFit, ScalingFit, fit_scaling
from workbench.analysis.scaling.offline import offline_points_df
from workbench.analysis.scaling.points import point_columns, scaling_groups, scaling_points_df
from workbench.analysis.scaling.words import forms_df, scaling_sentence

__all__ = [
    "FormFit",
    "ScalingFit",
    "fit_scaling",
    "forms_df",
    "offline_points_df",
    "point_columns",
    "scaling_groups",
    "scaling_points_df",
    "scaling_sentence",
]
