"""The clusters of battles: those of one cluster are one observation, as those of one prompt are."""

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np

from elo_exp.data.battles import Battles, Codes

# The cluster of battles without a question among others
UNNAMED_CLUSTER = "no question named"


def set_clusters(battles: Battles, cluster_of: Mapping[str, str]) -> Battles:
    """Name the cluster of each battle by its question; those that are not named keep the one that they have."""
    number = {name: code for code, name in enumerate(battles.clusters)}
    codes = [
        -1 if name is None else number.setdefault(name, len(number))
        for name in map(cluster_of.get, battles.questions)
    ]
    of_question = np.array([*codes, -1], dtype=np.int32)
    named_cluster = of_question[np.minimum(battles.question, len(codes))]
    cluster = np.where(
        named_cluster >= 0, named_cluster, battles.fill_column("cluster", -1)
    )
    if (cluster < 0).all():
        return battles
    return dataclasses.replace(battles, cluster=cluster, clusters=tuple(number))


def map_questions_to_clusters(battles: Battles) -> dict[str, str]:
    """Return the cluster of each question that is in one."""
    if battles.cluster is None:
        return {}
    is_named = (battles.question < len(battles.questions)) & (battles.cluster >= 0)
    pairs = np.stack((battles.question[is_named], battles.cluster[is_named]))
    return {
        battles.questions[question]: battles.clusters[cluster]
        for question, cluster in np.unique(pairs, axis=1).T.tolist()
    }


def set_cluster_codes(
    battles: Battles, names: Sequence[str], cluster: Codes
) -> Battles:
    """Name the cluster of each battle by its place (n,) in `names`; -1: the one that it has, if any."""
    number = {name: code for code, name in enumerate(battles.clusters)}
    used = np.unique(cluster[cluster >= 0])
    code = np.full(len(names) + 1, -1, dtype=np.int32)
    for i in used.tolist():
        code[i] = number.setdefault(names[i], len(number))
    new_cluster = np.where(
        cluster >= 0, code[cluster], battles.fill_column("cluster", -1)
    )
    return dataclasses.replace(battles, cluster=new_cluster, clusters=tuple(number))
