//! Tests of the formats: properties of every layout, and bytes that drivers of Linux exchange with
//! a device.

mod bytes;
mod entries;
mod layouts;
