"""Public data, split vertically between parties; one file per data set."""

from colonnade.datasets.adult import ADULT_FIELDS, AGE_CLASSES, adult, adult_platforms, age_classes
from colonnade.datasets.bank_marketing import BANK_FULL_BOUNDS, BANK_FULL_LEVELS, bank_full, bank_marketing
from colonnade.datasets.breast_cancer import (
    BREAST_CANCER_BOUNDS,
    breast_cancer,
    breast_cancer_hospitals,
    breast_cancer_views,
)
from colonnade.datasets.census_income import (
    CENSUS_GROUPS,
    CENSUS_SHARED,
    CENSUS_WIDTHS,
    CensusIncome,
    census_income,
)
from colonnade.datasets.cifar10 import CIFAR10_CLASSES, cifar10, cifar10_halves, cifar10_views
from colonnade.datasets.default_credit import default_credit
from colonnade.datasets.digits import digits_few_shared, digits_halves
from colonnade.datasets.fate_examples import FATE_EXAMPLES, fate_example
from colonnade.datasets.give_me_some_credit import give_me_some_credit
from colonnade.datasets.graphs import SocialGraph, ego_facebook, hamilton46
from colonnade.datasets.image_views import CIFAR10_VIEWS, MNIST_VIEWS, ImageViews
from colonnade.datasets.mfeat import MFEAT_VIEWS, mfeat
from colonnade.datasets.mind import (
    MIND_NO_TITLE,
    MindImpression,
    MindNews,
    MindPlatforms,
    mind_platforms,
    mind_sample,
    read_mind_impressions,
    read_mind_news,
)
from colonnade.datasets.mnist import mnist, mnist_views
from colonnade.datasets.movielens import movielens_platforms
from colonnade.datasets.town import (
    TOWN_GROUPS,
    town_attributes,
    town_labels_elsewhere,
    town_later,
    town_people,
    town_sister_banks,
)
from colonnade.datasets.wikipedia_crossmodal import WIKIPEDIA_CATEGORIES, wikipedia_crossmodal

__all__ = [
    "ADULT_FIELDS",
    "AGE_CLASSES",
    "BANK_FULL_BOUNDS",
    "BANK_FULL_LEVELS",
    "BREAST_CANCER_BOUNDS",
    "CENSUS_GROUPS",
    "CENSUS_SHARED",
    "CENSUS_WIDTHS",
    "CIFAR10_CLASSES",
    "CIFAR10_VIEWS",
    "FATE_EXAMPLES",
    "MFEAT_VIEWS",
    "MIND_NO_TITLE",
    "MNIST_VIEWS",
    "TOWN_GROUPS",
    "WIKIPEDIA_CATEGORIES",
    "CensusIncome",
    "ImageViews",
    "MindImpression",
    "MindNews",
    "MindPlatforms",
    "SocialGraph",
    "adult",
    "adult_platforms",
    "age_classes",
    "bank_full",
    "bank_marketing",
    "breast_cancer",
    "breast_cancer_hospitals",
    "breast_cancer_views",
    "census_income",
    "cifar10",
    "cifar10_halves",
    "cifar10_views",
    "default_credit",
    "digits_few_shared",
    "digits_halves",
    "ego_facebook",
    "fate_example",
    "give_me_some_credit",
    "hamilton46",
    "mfeat",
    "mind_platforms",
    "mind_sample",
    "mnist",
    "mnist_views",
    "movielens_platforms",
    "read_mind_impressions",
    "read_mind_news",
    "town_attributes",
    "town_labels_elsewhere",
    "town_later",
    "town_people",
    "town_sister_banks",
    "wikipedia_crossmodal",
]
