//! Creating and dropping collections, and how much of their past they keep.

use crate::plan::{DataflowDescription, IndexDescription};
use crate::protocol::{Command, Frontiers};
use crate::repr::{Frontier, GlobalId, Timestamp};

use super::collection::{Collection, Origin, ReadPolicy, Stage};
use super::dataflow::Dataflow;
use super::holds::{DataflowKey, Holder};
use super::{Controller, ControllerError};

impl Controller {
    /// Makes a source known, which lives outside the replica: readable from 0 on, nothing complete.
    ///
    /// # Errors
    /// [`ControllerError::Exists`] and [`ControllerError::Draining`].
    pub fn create_source(&mut self, id: GlobalId, arity: usize) -> Result<(), ControllerError> {
        self.check_free(id)?;
        let source = Collection::new(Origin::Source, arity, 0, ReadPolicy::default());
        self.collections.insert(id, source);
        Ok(())
    }

    /// A source is complete up to `upper`.
    ///
    /// # Errors
    /// [`ControllerError::Unknown`], [`ControllerError::NotASource`], and
    /// [`ControllerError::Regressed`] if it was complete beyond that already.
    pub fn source_upper(&mut self, id: GlobalId, upper: Frontier) -> Result<(), ControllerError> {
        let source = self.collections.get_mut(&id).ok_or(ControllerError::Unknown(id))?;
        if source.dataflow().is_some() {
            return Err(ControllerError::NotASource(id));
        }
        source
            .progress
            .advance(&Frontiers { write: Some(upper), ..Frontiers::default() })
            .map_err(|regression| ControllerError::Regressed { id, regression })?;
        source.apply_policy();
        self.settle([id]);
        Ok(())
    }

    /// Builds a dataflow and lets it run. Its exports can be read from its `as_of` on.
    ///
    /// # Errors
    /// [`ControllerError::Plan`] if it cannot be rendered; [`ControllerError::Exists`] or
    /// [`ControllerError::Draining`] if the id of an export is not free; and if an import is not
    /// what the description says, or cannot be read at `as_of`, what is wrong with it.
    pub fn create_dataflow(
        &mut self,
        description: DataflowDescription,
    ) -> Result<(), ControllerError> {
        let arities = description.validate()?;
        description.export_ids().try_for_each(|id| self.check_free(id))?;
        self.check_imports(&description)?;
        let key = DataflowKey(self.next_dataflow);
        self.next_dataflow += 1;
        let as_of = description.as_of;
        for (id, index) in &description.index_exports {
            let origin = Origin::Index { description: index.clone(), dataflow: key };
            let export = Collection::new(origin, arities[&index.on], as_of, ReadPolicy::default());
            self.collections.insert(*id, export);
        }
        for id in description.import_ids() {
            if let Some(import) = self.collections.get_mut(&id) {
                import.holds.place(Holder::Dataflow(key), as_of);
            }
        }
        let exports: Vec<GlobalId> = description.export_ids().collect();
        let dataflow = Dataflow {
            imports: description.import_ids().collect(),
            exports: exports.clone(),
            as_of,
            until: description.until.clone(),
        };
        self.dataflows.insert(key, dataflow);
        self.send(Command::CreateDataflow(Box::new(description)));
        exports.into_iter().for_each(|id| self.send(Command::Schedule(id)));
        Ok(())
    }

    /// Sets how far a collection may be compacted when nobody else holds it.
    ///
    /// What was compacted already stays so.
    ///
    /// # Errors
    /// [`ControllerError::Unknown`] and [`ControllerError::Dropped`].
    pub fn set_read_policy(
        &mut self,
        id: GlobalId,
        policy: ReadPolicy,
    ) -> Result<(), ControllerError> {
        self.live(id)?;
        if let Some(collection) = self.collections.get_mut(&id) {
            collection.policy = policy;
            collection.apply_policy();
        }
        self.settle([id]);
        Ok(())
    }

    /// Drops a collection: it takes no new reads, and is gone when those that read it already are
    /// done.
    ///
    /// A dataflow that imports it is such a reader until it is dropped itself. The id of an index
    /// is free again when the replica has reported its end and all that was built with it is
    /// dropped, too.
    ///
    /// # Errors
    /// [`ControllerError::Unknown`] and [`ControllerError::Dropped`].
    pub fn drop_collection(&mut self, id: GlobalId) -> Result<(), ControllerError> {
        self.live(id)?;
        if let Some(collection) = self.collections.get_mut(&id) {
            collection.start_drop();
        }
        self.settle([id]);
        Ok(())
    }

    /// A collection that exists and was not dropped.
    pub(super) fn live(&self, id: GlobalId) -> Result<&Collection, ControllerError> {
        let collection = self.collections.get(&id).ok_or(ControllerError::Unknown(id))?;
        match collection.stage {
            Stage::Live => Ok(collection),
            Stage::Dropping | Stage::Dropped => Err(ControllerError::Dropped(id)),
        }
    }

    /// A collection that can still be read at `time`, now or once it is complete there.
    pub(super) fn readable(
        &self,
        id: GlobalId,
        time: Timestamp,
    ) -> Result<&Collection, ControllerError> {
        let collection = self.live(id)?;
        match collection.since.less_equal(&time) {
            true => Ok(collection),
            false => Err(ControllerError::Compacted { id, time, since: collection.since.clone() }),
        }
    }

    /// An index that can still be read at `time`, and what it is.
    pub(super) fn readable_index(
        &self,
        id: GlobalId,
        time: Timestamp,
    ) -> Result<(&Collection, &IndexDescription), ControllerError> {
        let collection = self.readable(id, time)?;
        match &collection.origin {
            Origin::Source => Err(ControllerError::NotAnIndex(id)),
            Origin::Index { description, .. } => Ok((collection, description)),
        }
    }

    fn check_free(&self, id: GlobalId) -> Result<(), ControllerError> {
        match self.collections.get(&id).map(|collection| collection.stage) {
            None => Ok(()),
            Some(Stage::Live) => Err(ControllerError::Exists(id)),
            Some(Stage::Dropping | Stage::Dropped) => Err(ControllerError::Draining(id)),
        }
    }

    fn check_imports(&self, dataflow: &DataflowDescription) -> Result<(), ControllerError> {
        let same_arity = |id: GlobalId, arity: usize, imported: usize| match arity == imported {
            true => Ok(()),
            false => Err(ControllerError::Arity { id, arity, imported }),
        };
        for (id, imported) in &dataflow.source_imports {
            let source = self.readable(*id, dataflow.as_of)?;
            if source.dataflow().is_some() {
                return Err(ControllerError::NotASource(*id));
            }
            same_arity(*id, source.arity, *imported)?;
        }
        for (id, import) in &dataflow.index_imports {
            let (collection, index) = self.readable_index(*id, dataflow.as_of)?;
            if *index != import.index {
                let (index, imported) = (index.clone(), import.index.clone());
                return Err(ControllerError::Index { id: *id, index, imported });
            }
            same_arity(*id, collection.arity, import.arity)?;
        }
        Ok(())
    }
}
