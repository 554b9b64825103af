"""The worker link's protocol: frames in, frames out."""
