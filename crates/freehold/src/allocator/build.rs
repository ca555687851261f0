//! Building an allocator: how much metadata it needs, and its tables in that.
//!
//! The steps are functions of their own and are not inlined: kernels have small stacks, and frames
//! of one function add up.

use crate::allocator::PageAllocator;
use crate::config::Config;
use crate::designs::Design;
use crate::error::Error;
use crate::memmap::region::{Carver, LayoutBuilder, Metadata, MetadataLayout};
use crate::memmap::stretches::StretchesPlan;
use crate::platform::Platform;
use crate::topology::{Topology, TopologyPlan};

impl<P: Platform, D: Design<P>> PageAllocator<P, D> {
    /// Where all tables lie.
    #[inline(never)]
    fn plan(
        config: &Config<'_>,
        settings: &D::Settings,
        layout: &mut LayoutBuilder,
    ) -> Result<(TopologyPlan, D::Plan), Error> {
        let topology = TopologyPlan::new(config, layout)?;
        Ok((topology, D::plan(config, settings, layout)?))
    }

    /// Computes how much metadata an allocator for this machine needs, and how it is laid out.
    ///
    /// The size depends on the memory (one record for each frame or pageblock of it, of gaps of
    /// less than 2^19 frames, and of a span that is given), on the numbers of CPUs, nodes and
    /// zones, on [`Config::frame_record_bytes`], on the settings, and for `cluster` on how many
    /// frames the ranges have. Compute it for the same configuration that [`PageAllocator::new`]
    /// gets.
    ///
    /// # Errors
    ///
    /// [`Error`], for any part of the configuration or the settings that is wrong.
    pub fn layout(config: &Config<'_>, settings: &D::Settings) -> Result<MetadataLayout, Error> {
        config.check()?;
        MetadataLayout::of(StretchesPlan::new(config)?.first(), |layout| {
            Self::plan(config, settings, layout)
        })
    }

    /// Builds an allocator whose state lives in `metadata`, and adds the configured memory to it.
    ///
    /// A panic of the platform, for instance of [`RawLock::new`](crate::platform::RawLock::new),
    /// propagates: everything initialised before it is dropped, and nothing uses the metadata any
    /// more.
    ///
    /// Cost: initialises all of the metadata, whose size grows with the frames of the span, and
    /// with the number of zones times that of CPUs and of nodes; of metadata that is zeroed, only
    /// what is not for frames without memory. Also scans all ranges once for each zone.
    ///
    /// # Errors
    ///
    /// Those of [`PageAllocator::layout`]; [`Error::MetadataTooSmall`] or
    /// [`Error::MetadataMisaligned`]; and those of
    /// [`PageAllocator::add_memory`] for each range.
    pub fn new(
        platform: P,
        config: &Config<'_>,
        settings: &D::Settings,
        metadata: Metadata,
    ) -> Result<Self, Error> {
        let mut place = None;
        Self::new_in(&mut place, platform, config, settings, metadata)?;
        Ok(place.expect("it has been built"))
    }

    /// As [`PageAllocator::new`], built where it stays: in a static of a kernel, whose stack is
    /// small. What was there before is dropped.
    ///
    /// # Errors
    ///
    /// Those of [`PageAllocator::new`]. The place is empty then.
    pub fn new_in<'a>(
        place: &'a mut Option<Self>,
        platform: P,
        config: &Config<'_>,
        settings: &D::Settings,
        metadata: Metadata,
    ) -> Result<&'a mut Self, Error> {
        *place = None;
        config.check()?;
        let mut layout = LayoutBuilder::new();
        // Looked at where it is: moved out of the result, it would be on the stack twice.
        let plan = Self::plan(config, settings, &mut layout);
        let plan = plan.as_ref().map_err(|&error| error)?;
        let carver = Carver::new(metadata, &layout.finish())?;
        let allocator = place.insert(Self::build(platform, config, settings, plan, carver));
        let added = allocator.design.add_memory(allocator.context(), config.ranges);
        if added.is_err() {
            *place = None;
        }
        added.map(|()| place.as_mut().expect("it has just been built"))
    }

    #[inline(never)]
    fn build(
        platform: P,
        config: &Config<'_>,
        settings: &D::Settings,
        (topology, design): &(TopologyPlan, D::Plan),
        mut carver: Carver,
    ) -> Self {
        let topology = Topology::carve(topology, config, &mut carver);
        let design = D::carve(design, config, &topology, settings, &mut carver);
        PageAllocator { platform, topology, design }
    }
}
