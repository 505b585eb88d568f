"""Accept length against training size: points, fits, the data needed to break even, and what cannot be known."""

from workbench.analysis.scaling.fit import FormFit, ScalingFit, fit_scaling
from workbench.analysis.scaling.points import scaling_groups, scaling_points_df
from workbench.analysis.scaling.words import forms_df, scaling_sentence

__all__ = [
    "FormFit",
    "ScalingFit",
    "fit_scaling",
    "forms_df",
    "scaling_groups",
    "scaling_points_df",
    "scaling_sentence",
]
