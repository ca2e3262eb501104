# SPDX-License-Identifier: Apache-2.0
"""The engine core's door, with vLLM's own encoder, decoder and request: a bad frame fails alone."""

from __future__ import annotations

import queue
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from vllm.config import KVTransferConfig
from vllm.exceptions import VLLMValidationError
from vllm.sampling_params import SamplingParams
from vllm.v1.engine import EngineCoreRequest, EngineCoreRequestType, core
from vllm.v1.serial_utils import MsgpackEncoder

from vllm_reuse_guard.patches.engine_core.requests import Undecodable, recover

pytestmark = pytest.mark.usefixtures("guarded")

NIXL = SimpleNamespace(
    kv_transfer_config=KVTransferConfig(kv_connector="NixlConnector", kv_role="kv_both")
)


def request(ids: Any = (1, 2), **extra_args: Any) -> EngineCoreRequest:
    """A request as the front end makes it, but for what is given."""
    return EngineCoreRequest(
        request_id="r1",
        prompt_token_ids=list(ids),
        mm_features=None,
        sampling_params=SamplingParams(extra_args=extra_args or None),
        pooling_params=None,
        arrival_time=0.0,
        lora_request=None,
        cache_salt=None,
        data_parallel_rank=None,
        client_index=3,
    )


def decoded(frames: Any) -> Any:
    """Decode frames as the input thread does."""
    return core.MsgpackDecoder(EngineCoreRequest).decode(frames)


def engine(config: Any = NIXL) -> Any:
    """An engine core that has its own code, and nothing behind the door."""
    made = core.EngineCoreProc.__new__(core.EngineCoreProc)
    made.vllm_config = config
    made.mm_receiver_cache = None
    made.request_block_hasher = None
    made.input_queue = queue.Queue()
    return made


def test_good_request_is_decoded() -> None:
    """
    What could be decoded before is decoded as before.
    """
    assert request() == decoded(MsgpackEncoder().encode(request()))


@pytest.mark.parametrize("ids", [[True], ["x"], [1.5], [None]], ids=repr)
def test_undecodable_request_says_whose_it_is(ids: Any) -> None:
    """
    The id and the client come from the raw frame.
    """
    made = decoded(MsgpackEncoder().encode(request(ids)))

    assert isinstance(made, Undecodable)
    assert ("r1", 3) == (made.request_id, made.client_index)


@pytest.mark.parametrize("frame", [b"", b"\xc1", b"\x01", msgspec.msgpack.encode([1, 2])])
def test_frame_that_says_nothing_is_told_apart(frame: bytes) -> None:
    """
    Without an id there is nobody to answer.
    """
    assert decoded([frame]).request_id is None


def test_any_error_counts() -> None:
    """
    Not only msgspec's: whatever a decoder raises.
    """
    good = MsgpackEncoder().encode(request())

    assert ("r1", 3) == (recover(good, ZeroDivisionError()).request_id, 3)


def test_other_frames_raise_as_before() -> None:
    """
    A frame that is no request has no client of its own; its error ends the thread loudly.
    """
    with pytest.raises(msgspec.DecodeError):
        core.MsgpackDecoder().decode([b"\xc1"])


def test_undecodable_request_fails_in_preprocessing() -> None:
    """
    vLLM's own handling of failed requests answers its client.
    """
    made = decoded(MsgpackEncoder().encode(request([True])))

    with pytest.raises(msgspec.ValidationError):
        engine().preprocess_add_request(made)


def test_good_request_passes() -> None:
    """
    A request for prefill is let in.
    """
    made, _ = engine().preprocess_add_request(
        request(kv_transfer_params={"do_remote_decode": True})
    )

    assert "r1" == made.request_id


@pytest.mark.parametrize(
    ("params", "field"),
    [
        ({"do_remote_prefill": True}, "remote_engine_id"),
        ({"remote_port": "1"}, "remote_port"),
        ({"remote_block_ids": {}}, "remote_block_ids"),
    ],
    ids=repr,
)
def test_bad_params_are_refused(params: Any, field: str) -> None:
    """
    Whichever front end let them through.
    """
    with pytest.raises(VLLMValidationError) as error:
        engine().preprocess_add_request(request(kv_transfer_params=params))

    assert f"kv_transfer_params.{field}" == error.value.parameter


def test_params_that_are_no_object_are_refused() -> None:
    """
    Engine parameters of a client's own can hold anything.
    """
    with pytest.raises(VLLMValidationError):
        engine().preprocess_add_request(request(kv_transfer_params="x"))


def test_ids_do_not_get_past_the_door() -> None:
    """
    The connector is not given forwarded ids by a front end that is not guarded.
    """
    params = {"do_remote_decode": True, "prompt_token_ids": [1]}

    made, _ = engine().preprocess_add_request(request(kv_transfer_params=params))

    assert {"do_remote_decode": True} == made.kv_transfer_params


@pytest.mark.parametrize("thread", ["process_input_sockets", "process_output_sockets"])
def test_thread_that_dies_ends_the_engine(thread: str) -> None:
    """
    The busy loop is told by vLLM's own way for a failed executor.
    """
    made = engine()

    with pytest.raises(Exception, match=r".?"):
        getattr(made, thread)()

    kind, _ = made.input_queue.get_nowait()
    assert kind is EngineCoreRequestType.EXECUTOR_FAILED
