//! The sharing primitive.
