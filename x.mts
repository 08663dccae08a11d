import { PGlite } from '@electric-sql/pglite'
let t = performance.now()
const lap = (n: string) => {
  const u = performance.now()
  console.log(n, Math.round(u - t))
  t = u
}
const db = await PGlite.create('memory://')
lap('mem create')
await db.exec('create table t(id serial, x text)')
lap('table')
for (let i = 0; i < 200; i++) await db.query('insert into t(x) values($1)', ['a'.repeat(200)])
lap('200 inserts mem')
const tar = await db.dumpDataDir('none')
lap('dump ' + tar.size)
const db2 = await PGlite.create('memory://', { loadDataDir: tar })
lap('load')
