/** Rules of this house for the linter. */
import { dirname, join, relative } from 'node:path'
import { isAllowed, rowOf } from './table.mjs'

/** Checks each relative import of `src/` and `sdk/` against the table. */
const layers = {
  create(context) {
    const from = pathOf(context.cwd, context.filename)
    if (rowOf(from) === undefined) return {}
    const check = ({ source }) => {
      if (typeof source?.value !== 'string' || !source.value.startsWith('.')) return
      const to = pathOf(context.cwd, join(dirname(context.filename), source.value))
      if (rowOf(to) === undefined || isAllowed(from, to)) return
      context.report({ node: source, message: `${rowOf(from)} may not import ${to}: scripts/imports/table.mjs` })
    }
    return {
      ImportDeclaration: check,
      ExportNamedDeclaration: check,
      ExportAllDeclaration: check,
      ImportExpression: check,
      TSImportType: check,
    }
  },
}

/** As in the table: below `src/`, which holds all but the SDK. */
function pathOf(root, file) {
  return relative(root, file).replace(/^src\//, '')
}

export default { meta: { name: 'atoll' }, rules: { layers } }
