/** For setup: `recipe` prints what an empty database is made of, `create FOLDER` makes one in FOLDER/db. */
import { databaseRecipe } from './dialect/pglite.ts'
import { openStore } from './index.ts'

const [command, folder = ''] = process.argv.slice(2)
if (command === 'create') await (await openStore({ dataDir: folder })).close()
else console.log(await databaseRecipe())
