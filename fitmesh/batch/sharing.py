"""Who does the clips, and with how many cores each."""

from fitmesh.stages.settings import WHOLE_IMAGE, RunSettings
from fitmesh.workers.tasks import Workers
from pose2d.base.errors import UserError
from pose2d.base.threads import cores


def divided(threads: int | None, jobs: int, ray: str | None) -> int:
    """Threads of one clip. On a cluster one: several clips side by side keep cores busier than one clip on several."""
    if ray is not None:
        return threads or 1
    return max(1, (threads or cores()) // jobs)


def workers_of(jobs: int, ray: str | None, settings: RunSettings) -> Workers:
    """Local processes, or a Ray cluster."""
    if ray is not None:
        from fitmesh.workers.ray_cluster import RayCluster

        return RayCluster(ray, settings.threads or 1)
    from fitmesh.workers.processes import Processes

    return Processes(jobs, settings.threads or 1)


def check_many(settings: RunSettings) -> None:
    """Refuse what describes one clip."""
    if settings.given_keypoints is not None:
        raise UserError("--keypoints belong to one clip, and many videos were asked for: leave them out.")
    if settings.tracks.detections not in (None, WHOLE_IMAGE):
        raise UserError("--detections belong to one clip, and many videos were asked for: leave them out.")
    if any(identity is not None for identity in settings.fit.scene.heights()):
        raise UserError("--height of single people belongs to one clip: with many videos give one for everybody.")
