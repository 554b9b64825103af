"""The gRPC servicers: decode, call, encode. Protobuf types end here; no SQL and no etcd begins here."""
