import assert from 'node:assert/strict'
import { mkdir, readdir, readFile, stat, writeFile } from 'node:fs/promises'
import { test } from 'node:test'
import { hostTool } from '../host/testing/host-tool.ts'
import { temporaryFolder } from '../testing/temporary-folder.ts'
import { hostNameImage, imagesBytes, linkImages, userNamespaceImage } from './image-files.ts'

test('images: the two with the identity have the bytes that CRIU writes itself', () => {
  // Taken from dumps by CRIU 4.2.1.
  const mapping = '0800108094ebdc0318808004'
  const message = `0a0c${mapping}120c${mapping}`
  assert.equal(userNamespaceImage(1_000_000_000).toString('hex'), `19435654064947551c000000${message}`)
  const name = Buffer.from('sb-1').toString('hex')
  const domain = Buffer.from('(none)').toString('hex')
  assert.equal(hostNameImage('sb-1').toString('hex'), `19435654033247540e0000000a04${name}1206${domain}`)
})

test('linkImages: links all images but those two, and lets the sizes of open files be forgotten', async (t) => {
  const folder = await temporaryFolder(t)
  await mkdir(`${folder}/from`)
  for (const name of ['pages-1.img', 'userns-7.img', 'utsns-8.img', 'descriptors.json', 'dump.log', 'action']) {
    await writeFile(`${folder}/from/${name}`, 'twelve bytes')
  }
  assert.equal(await imagesBytes(`${folder}/from`), 48)
  assert.equal(await imagesBytes(`${folder}/missing`), 0)
  const user = process.getuid?.() ?? 0
  await linkImages(hostTool, `${folder}/from`, `${folder}/to`, { id: 'sb-2', rangeStart: user })
  assert.deepEqual((await readdir(`${folder}/to`)).toSorted(), [
    'descriptors.json',
    'pages-1.img',
    'userns-7.img',
    'utsns-8.img',
  ])
  assert.equal((await stat(`${folder}/to/pages-1.img`)).nlink, 2)
  assert.match(await readFile(`${folder}/to/utsns-8.img`, 'latin1'), /sb-2/)
  assert.equal(await readFile(`${folder}/from/utsns-8.img`, 'utf8'), 'twelve bytes')
})
