"""The features that a head is trained on, computed in shards by several processes or machines.

A shard that is on disk is not computed again, so a run that was killed goes on, and a worker that was killed costs its
shard only. The cache's folder must be one that all workers see.
"""

import math
from dataclasses import dataclass, replace
from functools import lru_cache

import pose2d
from ccnet.data.datasets import AnnotatedPerson, read_split
from ccnet.data.examples import observation_caches, passes
from ccnet.data.observations import SHARD, ObservationCache
from ccnet.other_features import with_features
from ccnet.recipes import TrainingSettings
from ccnet.train import new_head
from fitmesh.many.executors import Notify
from fitmesh.many.ray_cluster import executor_of, threads_each
from fitmesh.options.training import TrainCcnetOptions
from fitmesh.ui.events import Reporter
from pose2d.base.errors import UserError
from pose2d.base.threads import use_threads
from pose2d.registry import use_plugin


@dataclass(frozen=True)
class ShardTask:
    """One shard of one pass over the training people."""

    request: TrainCcnetOptions
    settings: TrainingSettings
    number: int  # of the pass among all
    first: int  # person


def fill_by_workers(reporter: Reporter, request: TrainCcnetOptions, settings: TrainingSettings, people: int) -> None:
    """Every shard of every pass."""
    threads = threads_each(request.threads, request.jobs or 1, request.ray)
    executor = executor_of(request.jobs or 1, request.ray, threads)
    request = replace(request, threads=threads)
    shards = [(number, first) for number in range(len(passes(settings))) for first in range(0, people, SHARD)]
    tasks = [ShardTask(request, settings, number, first) for number, first in shards]
    with reporter.stage(f"pose network, {executor}", people * len(passes(settings)), "people") as step:
        for ended in executor.map(fill_shard, tasks, lambda number, count: step(count)):
            if ended.lost:
                first = tasks[ended.number].first
                raise UserError(f"the features of the people from number {first} on cannot be computed: {ended.lost}")
            if request.ray is not None:  # nothing is notified from there
                step(ended.result)


def fill_shard(task: ShardTask, notify: Notify) -> int:
    """People in the shard."""
    use_threads(task.request.threads)
    cache = _caches(task.request, task.settings)[task.number]
    cache.fill_shard(task.first, notify)
    return len(cache.people[task.first : task.first + SHARD])


@lru_cache(maxsize=1)
def _caches(request: TrainCcnetOptions, settings: TrainingSettings) -> list[ObservationCache]:
    """The network stays loaded from shard to shard."""
    use_plugin(request.plugin)
    model = pose2d.load(request.model, request.checkpoint).to(request.device or "cpu")
    model = with_features(model, settings.features)
    splits = [read_split(request.data, name, model.skeleton) for name in request.train]
    people = people_with_target([person for split in splits for person in split.people], settings)
    head = new_head(model, settings, request.model)
    return observation_caches(model, head, people, settings, request.cache_folder)


def people_with_target(people: list[AnnotatedPerson], settings: TrainingSettings) -> list[AnnotatedPerson]:
    """Without those of whom the target is not known."""
    if settings.target == "oks":
        return people
    known = [person for person in people if math.isfinite(person.head_px)]
    if not known:
        raise UserError("--target pck: nobody to train on has a head size (upper neck and head top labelled).")
    return known
