"""ggml's CPU backend through ctypes: from the package libggml-python, or a build of one's own.

The weights are in the buffer type that ggml prefers for them, which repacks them for the processor
where the build can; both projections are one graph; the threads are a pool that is kept.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Iterator
from ctypes import POINTER, Structure, c_bool, c_char_p, c_int, c_int64, c_size_t, c_void_p
from functools import partial
from importlib import import_module, metadata
from pathlib import Path
from typing import Any

import numpy as np

from mlxops.bench.measuring import Call
from mlxops.bench.weights import Float32, Weights

TYPE_F32, TYPE_Q4_0 = 0, 2

# More than sizeof(struct ggml_threadpool_params).
THREADPOOL_PARAMS_BYTES = 4096

# Two products, their operands and the room that ggml wants beside them.
GRAPH_NODES = 16

# Where ggml was built with OpenMP, its threads look out for more work about so long.
SPIN_SECONDS = 0.03


class InitParams(Structure):
    """struct ggml_init_params."""

    _fields_ = (("mem_size", c_size_t), ("mem_buffer", c_void_p), ("no_alloc", c_bool))


class Feature(Structure):
    """struct ggml_backend_feature."""

    _fields_ = (("name", c_char_p), ("value", c_char_p))


LogCallback = ctypes.CFUNCTYPE(None, c_int, c_char_p, c_void_p)

# ggml tells of each tensor that it repacks.
IGNORE_LOG = LogCallback(lambda level, text, user_data: None)

# The functions used: the library, the result and the arguments.
FUNCTIONS: dict[str, tuple[str, Any, list[Any]]] = {
    "ggml_version": ("base", c_char_p, []),
    "ggml_log_set": ("base", None, [LogCallback, c_void_p]),
    "ggml_init": ("base", c_void_p, [InitParams]),
    "ggml_free": ("base", None, [c_void_p]),
    "ggml_tensor_overhead": ("base", c_size_t, []),
    "ggml_graph_overhead_custom": ("base", c_size_t, [c_size_t, c_bool]),
    "ggml_new_tensor_2d": ("base", c_void_p, [c_void_p, c_int, c_int64, c_int64]),
    "ggml_mul_mat": ("base", c_void_p, [c_void_p, c_void_p, c_void_p]),
    "ggml_new_graph_custom": ("base", c_void_p, [c_void_p, c_size_t, c_bool]),
    "ggml_build_forward_expand": ("base", None, [c_void_p, c_void_p]),
    "ggml_nbytes": ("base", c_size_t, [c_void_p]),
    "ggml_backend_alloc_ctx_tensors_from_buft": ("base", c_void_p, [c_void_p, c_void_p]),
    "ggml_backend_alloc_buffer": ("base", c_void_p, [c_void_p, c_size_t]),
    "ggml_backend_buffer_get_base": ("base", c_void_p, [c_void_p]),
    "ggml_backend_buffer_free": ("base", None, [c_void_p]),
    "ggml_backend_buft_name": ("base", c_char_p, [c_void_p]),
    "ggml_backend_tensor_alloc": ("base", c_int, [c_void_p, c_void_p, c_void_p]),
    "ggml_backend_tensor_set": ("base", None, [c_void_p, c_void_p, c_size_t, c_size_t]),
    "ggml_backend_tensor_get": ("base", None, [c_void_p, c_void_p, c_size_t, c_size_t]),
    "ggml_backend_get_default_buffer_type": ("base", c_void_p, [c_void_p]),
    "ggml_backend_graph_compute": ("base", c_int, [c_void_p, c_void_p]),
    "ggml_backend_reg_dev_get": ("base", c_void_p, [c_void_p, c_size_t]),
    "ggml_backend_reg_get_proc_address": ("base", c_void_p, [c_void_p, c_char_p]),
    "ggml_backend_dev_supports_op": ("base", c_bool, [c_void_p, c_void_p]),
    "ggml_threadpool_params_init": ("base", None, [c_void_p, c_int]),
    "ggml_threadpool_new": ("cpu", c_void_p, [c_void_p]),
    "ggml_threadpool_pause": ("cpu", None, [c_void_p]),
    "ggml_backend_cpu_init": ("cpu", c_void_p, []),
    "ggml_backend_cpu_reg": ("cpu", c_void_p, []),
    "ggml_backend_cpu_set_n_threads": ("cpu", None, [c_void_p, c_int]),
    "ggml_backend_cpu_set_threadpool": ("cpu", None, [c_void_p, c_void_p]),
}


class Library:
    """ggml's functions, as attributes."""

    def __init__(self, folder: Path) -> None:
        libraries = {name: ctypes.CDLL(str(find(folder, name))) for name in ("base", "cpu")}
        for name, (library, result, arguments) in FUNCTIONS.items():
            try:
                function = getattr(libraries[library], name)
            except AttributeError:
                raise ImportError(f"the ggml in {folder} has no {name}") from None
            function.restype, function.argtypes = result, arguments
            setattr(self, name, function)

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"{name} is not among the functions")


def find(folder: Path, name: str) -> Path:
    """One of ggml's libraries, somewhere in a folder."""
    for suffix in ("so", "dylib"):
        for path in sorted(folder.rglob(f"libggml-{name}.{suffix}")):
            return path
    raise FileNotFoundError(f"there is no libggml-{name} in {folder}")


class GGML:
    """ggml, its CPU backend."""

    def __init__(self, threads: int, folder: Path | None) -> None:
        if folder:
            source = f"from {find(folder, 'cpu')}"
        else:
            [folder] = map(Path, import_module("libggml").__path__)
            source = f"from libggml-python {metadata.version('libggml-python')}"
        self.library = ggml = Library(folder)
        ggml.ggml_log_set(IGNORE_LOG, None)
        self.backend = ggml.ggml_backend_cpu_init()
        params = ctypes.create_string_buffer(THREADPOOL_PARAMS_BYTES)
        ggml.ggml_threadpool_params_init(params, threads)
        self._pool = ggml.ggml_threadpool_new(params)
        ggml.ggml_backend_cpu_set_threadpool(self.backend, self._pool)
        ggml.ggml_backend_cpu_set_n_threads(self.backend, threads)
        registry = ggml.ggml_backend_cpu_reg()
        self.device = ggml.ggml_backend_reg_dev_get(registry, 0)
        features = " ".join(self._features(registry))
        self.description = f"{ggml.ggml_version().decode()} {source} ({features})"

    def buffer_types(self) -> Iterator[int]:
        """The buffer types for weights, in the order in which ggml prefers them."""
        ggml = self.library
        address = ggml.ggml_backend_reg_get_proc_address(
            ggml.ggml_backend_cpu_reg(), b"ggml_backend_dev_get_extra_bufts"
        )
        if address:
            get = ctypes.CFUNCTYPE(POINTER(c_void_p), c_void_p)(address)
            for buffer_type in get(self.device):
                if not buffer_type:
                    break
                yield buffer_type
        yield ggml.ggml_backend_get_default_buffer_type(self.backend)

    def load(self, weights: Weights) -> LoadedGGML:
        """Copy the weights, repacked if that can be."""
        return LoadedGGML(self, weights)

    def pause(self) -> None:
        """Put the threads to sleep; the next graph wakes them."""
        self.library.ggml_threadpool_pause(self._pool)
        time.sleep(SPIN_SECONDS)

    def _features(self, registry: int) -> Iterator[str]:
        """The instruction sets and so on that the build uses."""
        address = self.library.ggml_backend_reg_get_proc_address(
            registry, b"ggml_backend_get_features"
        )
        if not address:
            return
        for feature in ctypes.CFUNCTYPE(POINTER(Feature), c_void_p)(address)(registry):
            if not feature.name:
                return
            yield feature.name.decode()


class Memory:
    """A context of ggml's, and the buffers of its tensors; freed with this object."""

    def __init__(self, ggml: Library, n_tensors: int, n_graphs: int) -> None:
        self._ggml = ggml
        graph_bytes = ggml.ggml_graph_overhead_custom(GRAPH_NODES, False)
        size = n_tensors * ggml.ggml_tensor_overhead() + n_graphs * graph_bytes
        self.context = ggml.ggml_init(InitParams(size, None, True))
        self.buffer: int | None = None

    def __del__(self) -> None:
        if self.buffer:
            self._ggml.ggml_backend_buffer_free(self.buffer)
        self._ggml.ggml_free(self.context)


class LoadedGGML:
    """The copies of a pair of weights in ggml's memory."""

    def __init__(self, peer: GGML, weights: Weights) -> None:
        self._peer = peer
        self._ggml = peer.library
        self._N, self._K = weights.N, weights.K
        self._copies = weights.copies(weights.pair_bytes)
        for buffer_type in peer.buffer_types():
            self._allocate(buffer_type)
            if self._supported():
                break
        for pair in self._pairs:
            for tensor, blocks in zip(pair, weights.blocks, strict=True):
                data = blocks.ctypes.data
                self._ggml.ggml_backend_tensor_set(tensor, data, 0, blocks.nbytes)
        name = self._ggml.ggml_backend_buft_name(buffer_type).decode()
        self.description = f"{peer.description}, weights in {name}"

    def _allocate(self, buffer_type: int) -> None:
        ggml = self._ggml
        self._weights = memory = Memory(ggml, 2 * self._copies, 0)
        tensors = [
            ggml.ggml_new_tensor_2d(memory.context, TYPE_Q4_0, self._K, self._N)
            for _ in range(2 * self._copies)
        ]
        memory.buffer = ggml.ggml_backend_alloc_ctx_tensors_from_buft(memory.context, buffer_type)
        self._pairs = list(zip(tensors[::2], tensors[1::2], strict=True))

    def _supported(self) -> bool:
        """Whether ggml multiplies by weights that are where these are."""
        ggml, memory = self._ggml, Memory(self._ggml, 2, 0)
        x = ggml.ggml_new_tensor_2d(memory.context, TYPE_F32, self._K, 1)
        product = ggml.ggml_mul_mat(memory.context, self._pairs[0][0], x)
        return bool(ggml.ggml_backend_dev_supports_op(self._peer.device, product))

    def calls(self, x: Float32) -> list[Call]:
        """A graph for every pair; x and the results are in the same memory for all of them."""
        ggml = self._ggml
        self._graphs = memory = Memory(ggml, 1 + 2 * self._copies, self._copies)
        self._shape = (len(x), self._N)
        x_bytes = -(-x.nbytes // 256) * 256
        result_bytes = -(-len(x) * self._N * 4 // 256) * 256
        memory.buffer = ggml.ggml_backend_alloc_buffer(
            self._peer.backend, x_bytes + 2 * result_bytes
        )
        base = ggml.ggml_backend_buffer_get_base(memory.buffer)
        x_tensor = ggml.ggml_new_tensor_2d(memory.context, TYPE_F32, self._K, len(x))
        ggml.ggml_backend_tensor_alloc(memory.buffer, x_tensor, base)
        ggml.ggml_backend_tensor_set(x_tensor, x.ctypes.data, 0, x.nbytes)
        calls: list[Call] = []
        for pair in self._pairs:
            graph = ggml.ggml_new_graph_custom(memory.context, GRAPH_NODES, False)
            self._products = [ggml.ggml_mul_mat(memory.context, each, x_tensor) for each in pair]
            for i, product in enumerate(self._products):
                address = base + x_bytes + i * result_bytes
                ggml.ggml_backend_tensor_alloc(memory.buffer, product, address)
                ggml.ggml_build_forward_expand(graph, product)
            calls.append(partial(ggml.ggml_backend_graph_compute, self._peer.backend, graph))
        return calls

    def results(self, returned: object) -> tuple[Float32, Float32]:
        """The results of the last graph that has run; RuntimeError if it failed."""
        if returned != 0:
            raise RuntimeError(f"ggml failed with status {returned}")
        a, b = np.empty((2, *self._shape), np.float32)
        for product, array in zip(self._products, (a, b), strict=True):
            self._ggml.ggml_backend_tensor_get(product, array.ctypes.data, 0, array.nbytes)
        return a, b

    def rest(self) -> None:
        """Let the threads sleep."""
        self._peer.pause()
