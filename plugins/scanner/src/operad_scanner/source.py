"""The source ``scanner``. It scans a folder when it is loaded and, with ``watch``, after each change of a file."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from operad import ConfigError, Operation, SourceError
from operad.plugin import SourceContext, SourceSession, record
from operad_scanner.fs import ScannerFS
from operad_scanner.scan import OperationManifest, scan_operations

if TYPE_CHECKING:
    import asyncio

    from operad.usage import Usage


@record(kw_only=True)
class ScannerConfig:
    """The options of a ``scanner`` source."""

    path: str | Path
    """A folder, or one file. A relative path begins at the configuration's folder."""
    fs: ScannerFS | None = None
    """The file system to read from; ``None`` for the local one."""
    watch: bool = False
    """Whether to scan again when a file changes (needs ``operad-scanner[watch]``)."""
    strict: bool = False
    """Whether the source fails if one file fails; otherwise the file is reported and left out."""


async def load(config: ScannerConfig, context: SourceContext) -> SourceSession:
    """Scan the folder and start its lifespan.

    Raises:
        ConfigError: ``path`` is empty.
        SourceError: ``path`` does not exist, its lifespan fails, a file fails and ``strict`` is set, or
            ``watch`` is set and watchfiles is not installed.
    """
    if not str(config.path):  # it would run every file of the current folder
        raise ConfigError('scanner: path is empty; name a folder, or write "." for the current one')
    path = context.path(config.path)
    import asyncio  # 17 ms: finding plugins imports this module and runs nothing

    # In a thread: a file's import may be slow, and other sources load at the same time.
    manifest = await asyncio.to_thread(_scan, path, config, context)
    session = ScannerSession(_operations(manifest, config, context.logger))
    session.usage = await _lifespan(manifest, path, context, None)
    if config.watch:
        session.watch(path, config, context)
    return session


async def _lifespan(
    manifest: OperationManifest, path: Path, context: SourceContext, old: Usage | None
) -> Usage | None:
    """Start the lifespan of a folder, if it has one. Raises `SourceError` if it fails."""
    from operad.usage import Lifespan, Usage

    if manifest.lifespan is None:
        return Usage() if isinstance(old, Lifespan) else old
    lifespan = Lifespan(manifest.lifespan, f"the folder {path}")
    await lifespan.start(context.registry)
    return lifespan


def _scan(path: Path, config: ScannerConfig, context: SourceContext) -> OperationManifest:
    try:
        return scan_operations(path, config.fs, namespace=context.namespace)
    except OSError as error:
        text = error.strerror or str(error)
        where = "" if str(path) in text else f"{error.filename or path}: "
        raise SourceError(f"scanner: {where}{text}") from error


def _operations(
    manifest: OperationManifest, config: ScannerConfig, logger: logging.Logger
) -> Sequence[Operation[..., Any]]:
    if config.strict and manifest.failures:
        raise SourceError("scanner: " + "; ".join(map(str, manifest.failures)))
    for failure in manifest.failures:
        logger.warning("file left out: %s", failure)
    return [*manifest.operations, *(Operation(spec, None) for spec in manifest.specs)]


class ScannerSession(SourceSession):
    """The operations of a folder; after `watch`, the folder is scanned again when a file changes."""

    _watcher: asyncio.Task[None] | None = None
    _ending: frozenset[asyncio.Task[None]] = frozenset()
    """The tasks that end replaced lifespans."""

    def _end(self, replaced: Usage | None, logger: logging.Logger) -> None:
        import asyncio

        async def end() -> None:
            try:
                await _close(replaced)
            except SourceError as error:
                logger.error("%s", error, exc_info=error)

        running = {task for task in self._ending if not task.done()}
        self._ending = frozenset({*running, asyncio.get_running_loop().create_task(end())})

    def watch(self, path: Path, config: ScannerConfig, context: SourceContext) -> None:
        """Scan again when a Python file in ``path`` changes. Raises `SourceError` if watchfiles is missing."""
        import asyncio

        try:
            import watchfiles
        except ImportError:
            raise SourceError(
                "scanner: watch = true needs watchfiles; install it: pip install operad-scanner[watch]"
            ) from None

        async def follow() -> None:
            async for _ in watchfiles.awatch(path, watch_filter=watchfiles.PythonFilter()):
                try:
                    manifest = await asyncio.to_thread(_scan, path, config, context)
                    operations = _operations(manifest, config, context.logger)
                    old, self.usage = self.usage, await _lifespan(manifest, path, context, self.usage)
                    self.changed(operations)
                    if old is not self.usage:
                        self._end(old, context.logger)
                except SourceError as error:  # the folder is as it was, for as long as it is broken
                    context.logger.warning("%s", error)
                except Exception:  # a background task, which must be ready for the next change
                    context.logger.exception("scanner: %s cannot be scanned again", path)

        async def watch() -> None:
            try:
                await follow()
            except Exception:  # what watches files raises its own; it would end without a word
                context.logger.exception("scanner: stopped watching %s", path)

        self._watcher = asyncio.get_running_loop().create_task(watch())

    async def aclose(self) -> None:
        """Stop watching, and end the lifespan after the calls in progress.

        Raises `SourceError` if the lifespan fails while it ends.
        """
        if self._watcher is not None:
            import asyncio

            self._watcher.cancel()
            await asyncio.gather(self._watcher, return_exceptions=True)
            await asyncio.gather(*self._ending)
            self._watcher = None
        await _close(self.usage)


async def _close(usage: Usage | None) -> None:
    """End a lifespan after the calls that use it. Raises `SourceError` if it fails."""
    from operad.usage import Lifespan

    if isinstance(usage, Lifespan):
        await usage.aclose()
