import { open } from 'node:fs/promises'

/** Where `struct btrfs_super_block` begins, and in it the id of the file system and its label, which a zero ends. */
const superblockAt = 65_536
const id = { at: 0x20, bytes: 16 }
const label = { at: 0x12b, bytes: 256 }

/**
 * Reads id and label from the file of a btrfs. Programs that tell them look at all loop devices of the machine, and fail when one of another
 * program ends meanwhile.
 */
export async function readSuperblock(imageFile: string): Promise<{ uuid: string; label: string }> {
  await using file = await open(imageFile)
  const { buffer, bytesRead } = await file.read(Buffer.alloc(label.at + label.bytes), 0, null, superblockAt)
  const block = buffer.subarray(0, bytesRead)
  const hex = block.toString('hex', id.at, id.at + id.bytes)
  return {
    uuid: hex.replace(/^(.{8})(.{4})(.{4})(.{4})/, '$1-$2-$3-$4-'),
    label: block.toString('latin1', label.at).split('\0', 1)[0]!,
  }
}
