// Numbers for modules are hashes, and where two are the same the next one free is taken, in an order that
// depends on where the sources lie. Paths relative to here are the same everywhere.
module.exports = { optimization: { moduleIds: 'named', chunkIds: 'named' } };
