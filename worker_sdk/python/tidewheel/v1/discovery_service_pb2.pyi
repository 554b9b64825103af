from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class WatchDispatchersRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class DispatcherList(_message.Message):
    __slots__ = ("dispatchers",)
    DISPATCHERS_FIELD_NUMBER: _ClassVar[int]
    dispatchers: _containers.RepeatedCompositeFieldContainer[DispatcherAddress]
    def __init__(self, dispatchers: _Optional[_Iterable[_Union[DispatcherAddress, _Mapping]]] = ...) -> None: ...

class DispatcherAddress(_message.Message):
    __slots__ = ("dispatcher_id", "address")
    DISPATCHER_ID_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    dispatcher_id: str
    address: str
    def __init__(self, dispatcher_id: _Optional[str] = ..., address: _Optional[str] = ...) -> None: ...
